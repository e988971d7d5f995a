// Package cgroup makes groups of the unified hierarchy (cgroups(7), version 2) for the processes of
// calls, where this program may: as root on the kernel that the processes run on. On the hybrid
// layout, where version 1 holds the limits, the unified tree has a folder for every container too,
// and moving a process there changes nothing but who can be killed with whom.
//
//	the container's own group, or the daemon's    /docker/ID
//	└── a tree, one for each owner                dray-1b2c..., locked while its owner lives
//	    ├── home                                  the agent, and supervisors that write KILL
//	    └── 1, 2, ...                             one for each supervisor, with the tool that it runs
//
// Killing the tree ends all that its owner started there, even where a tool that is root killed
// agent and supervisors: a process cannot leave its group without writing to a file outside of it,
// and a container has none to write to. A tool on the host that is root has.
//
// What an owner that crashed left behind is ended by the next one that comes to the same group.
package cgroup
