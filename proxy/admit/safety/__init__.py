"""Safety filters for everything that is stored: secrets, personal data, and texts that try to steer the
assistant, whoever brings them.
"""
