#!/bin/sh
# Replaces ssh for mpirun in scale.py: ADDRESS COMMAND... runs the command in the second namespace, as a machine with
# another name.
address=$1
shift
exec ip netns exec tern-b unshare --uts sh -c "hostname $address && exec sh -c '$*'"
