"""Images of transactional ids between C and Python; see _images.pyx."""

from kbroker.coordinator.txn.image import TransactionImage

def encode_value(image: TransactionImage, version: int) -> bytes:
    """The value of the id's record in this version, 0 or 1."""
