"""A Ray cluster of two nodes on this machine, for the tests; runs in an environment with Ray.

Prints the address and the folder of the logs; ends with its input. Each line of the input is a command, which is
answered by a line: `kill` (ends the second node at once; prints how many actors were on it) and `add` (a new one).
"""

import json
import os
import sys

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray._private.state import actors
from ray.cluster_utils import Cluster

# Ray writes to stdout from its own threads, in the middle of a line of ours: that goes to stderr
ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        second = cluster.add_node(**NODE)
        ray.init(cluster.address, log_to_driver=False)
        answer({"address": cluster.address, "logs": cluster.head_node.get_logs_dir_path()})
        for command in sys.stdin:
            if command.strip() == "kill":
                alive = [actor for actor in actors().values() if actor["State"] == "ALIVE"]
                cluster.remove_node(second, allow_graceful=False)
                answer({"actors": sum(actor["Address"]["NodeID"] == second.node_id for actor in alive)})
            else:
                second = cluster.add_node(**NODE)
                cluster.wait_for_nodes()
                answer({})
    finally:
        ray.shutdown()
        cluster.shutdown()


def answer(value: object) -> None:
    print(json.dumps(value), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
