"""The scripted model, and the demo that plays against it. Nothing here is needed to run the proxy."""
