"""What a build is asked for: its flags, sizes, forms of ONNX files, and who loads them."""
