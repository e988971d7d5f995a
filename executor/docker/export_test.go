package docker

import "github.com/dray-dev/dray/executor/agentbin"

// SetAgent makes e copy program into containers in place of the agent.
func (e *Engine) SetAgent(program []byte) {
	e.agentFor = func(arch string) (agentbin.Agent, error) {
		return agentbin.Agent{Arch: arch, Data: program, Digest: "test"}, nil
	}
}
