"""The parts of numba that the compilation of loops uses. Import them from here, and nowhere else from numba.

numba's modules import each other in circles. Two threads that import numba at the same time through two modules can
each see half of it, and the loops of one are then missing. Whatever needs numba waits for the import of this module.
"""

import numba as numba
from numba.core import cgutils as cgutils, types as types
from numba.core.caching import (
    CompileResultCacheImpl as CompileResultCacheImpl,
    FunctionCache as FunctionCache,
    InTreeCacheLocator as InTreeCacheLocator,
)
from numba.extending import intrinsic as intrinsic
