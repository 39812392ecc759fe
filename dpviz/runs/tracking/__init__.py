"""Runs that another program trains: logged while they train, or read from a file of theirs."""
