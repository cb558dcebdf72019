"""The Responses API for an upstream that knows only chat completions. Pure: values in, values out.

request → plan        (request, items, messages, tools, tool_items)
chunks  → events      (response, output)
"""
