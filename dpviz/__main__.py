"""python -m dpviz"""

from dpviz.cli import run

if __name__ == "__main__":
    run()
