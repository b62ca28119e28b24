# Sourced by the launchers, with `root` set to the repository: returns when $root/.venv is what the lock file asks for.
# The stamp that says so is compared here, without starting a Python, so that a second start costs next to nothing.

# Images of containers often set this. Each process would then compile some 500 modules again, which doubles its start.
unset PYTHONDONTWRITEBYTECODE

stratalog_key=$(cd -- "$root" && pwd && cksum pyproject.toml uv.lock tools/set_up.py)
stratalog_stamp=$(cat "$root/.venv/set-up.stamp" 2>/dev/null || :)
if [ "$stratalog_stamp" != "$stratalog_key" ] || ! [ -x "$root/.venv/bin/python" ]; then
    stratalog_python=
    stratalog_seen=
    for stratalog_name in ${STRATALOG_PYTHON:-python3.13 python3.12 python3.11 python3 python python3.14}; do
        command -v "$stratalog_name" >/dev/null 2>&1 || continue
        # 3: too old. 4: nothing in it that could fetch a package.
        stratalog_status=0
        "$stratalog_name" -c '
import sys
if sys.version_info < (3, 11):
    sys.exit(3)
from importlib.util import find_spec
sys.exit(0 if find_spec("pip") or find_spec("ensurepip") else 4)' >/dev/null 2>&1 || stratalog_status=$?
        case $stratalog_status in
            0) stratalog_python=$stratalog_name && break ;;
            3) stratalog_seen="$stratalog_seen; $stratalog_name is older" ;;
            4) stratalog_seen="$stratalog_seen; $stratalog_name has neither pip nor ensurepip (on Debian or Ubuntu: apt install python3-venv)" ;;
        esac
    done
    if [ -z "$stratalog_python" ]; then
        echo "stratalog: set-up needs Python 3.11 or newer with pip or ensurepip on the path${stratalog_seen:-; there is none}" >&2
        exit 2
    fi
    "$stratalog_python" "$root/tools/set_up.py" "$stratalog_key" || exit $?
fi
