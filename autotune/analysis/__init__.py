"""What is known of a kernel without running it.

`shared_memory` and `global_memory` count what one warp access costs, `occupancy`, `roofline` and
`waves` what the device allows, `sass` what the compiler made of the source, and `predict` puts a
time on a candidate. Import the module you need: this package itself imports nothing.
"""
