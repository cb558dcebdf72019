"""Fact extraction: from exchanges to candidate memories, with the text that each candidate rests on."""
