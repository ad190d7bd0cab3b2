//! Handwritten digits, or any small greyscale images from CSV and IDX files.
