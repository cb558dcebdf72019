"""Core value types, the ports (Protocols) and the error tree. Imports nothing else of ours."""
