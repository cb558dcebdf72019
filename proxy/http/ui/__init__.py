"""The web page at /ui, on which users see and change what is remembered about them."""
