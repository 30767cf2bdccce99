"""Examples that come with the package: `python -m topstitch NAME` runs one.

Each is a module with `main(arguments)`, which returns an exit status; modules with an underscore are what they share.
The folder examples/ of the project is installed as this package.
"""
