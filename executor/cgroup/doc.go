// Package cgroup creates cgroups v2 (cgroups(7)) for the processes of calls. It needs root on the
// kernel that the processes run on. In the hybrid layout, where cgroup v1 has the limits, the v2
// hierarchy has a directory for every container too, and moving a process there changes only how it
// can be killed.
//
//	cgroup of the container or the daemon    /docker/ID
//	└── one for each Manager                 dray-1b2c..., locked while its owner runs
//	    ├── home                             the agent, and supervisors that write cgroup.kill
//	    └── 1, 2, ...                        one for each supervisor, with its tool
//
// Killing the Manager's cgroup ends all processes that its owner started, even if a tool that is
// root killed the agent and its supervisors. To leave a cgroup, a process has to write to a file
// outside of it. A container has no such file, unless CanLeave reports that it may; then an empty
// cgroup is no proof. A tool on the host that is root has one.
//
// NewManager kills what an owner that has crashed left in the same cgroup.
package cgroup
