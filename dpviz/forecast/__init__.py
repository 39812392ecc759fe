"""The accuracy to expect of a noise schedule that was never trained. numpy and scipy only."""
