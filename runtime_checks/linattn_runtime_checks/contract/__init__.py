"""The contract of a folder: manifest, golden pack, hashes, codes, and how outputs are compared."""
