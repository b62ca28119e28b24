from . import bucket_owner as bucket_owner
from .broker_ownership import BrokerOwnership as BrokerOwnership, Claimant as Claimant
from .bucket_owner import (
    BucketOwner as BucketOwner,
    check_directories as check_directories,
    check_no_owner as check_no_owner,
    check_owner as check_owner,
    give_up as give_up,
    made_by_brokers as made_by_brokers,
    owners as owners,
    read_owner as read_owner,
    take_over as take_over,
)
from .owner_file import OWNERSHIP_FILE as OWNERSHIP_FILE, OwnershipFile as OwnershipFile
