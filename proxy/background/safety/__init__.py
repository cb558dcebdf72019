"""What may reach the disk: secrets, personal data and texts that steer, whoever brings them."""
