"""What Slurm has done on a node for a job's pools: `python -m engram.slurm VERB`.

A plan comes from `slurm/burst_buffer.lua`, or from a job's comment by Slurm's Prolog. Root makes
the folders; all that is in them is made, copied and dropped by the job's user.
"""
