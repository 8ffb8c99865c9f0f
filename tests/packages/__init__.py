"""What `make wheels` builds, and `pip install .`, in environments that have nothing else."""
