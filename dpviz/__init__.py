"""dpviz: the privacy-utility trade-off of differentially private training, at pointer speed."""

__version__ = "0.1.0"
