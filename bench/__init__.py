"""Speed of the proxy compared with nginx, LiteLLM's proxy and Portkey's gateway, in one run on one machine.

`scripts/bench` starts it. `workload` says what is sent, `servers` who answers, `cell` how one measurement
is made, `report` what is printed. `proxy/` imports nothing from here.
"""
