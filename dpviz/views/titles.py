"""How names from the privacy tables are written on screen."""

ACCOUNTANT_TITLES = {"pld": "PLD (tight)", "rdp": "RDP, improved", "rdp-classic": "RDP, classic"}
ADJACENCY_TITLES = {"add-remove": "Add or remove one", "zero-out": "Zero out one", "replace-one": "Replace one"}
SAMPLING_TITLES = {"poisson": "Poisson", "fixed-order": "Fixed order", "shuffled": "Shuffled"}
# Field of Assumptions -> what it is called in a sentence, and its titles.
ASSUMPTION_TITLES = {
    "sampling": ("batches", SAMPLING_TITLES),
    "adjacency": ("neighbours", ADJACENCY_TITLES),
    "accountant": ("accountant", ACCOUNTANT_TITLES),
}
