package devcontainer

import (
	"testing"
)

// BenchmarkResolve measures Resolve without git.
func BenchmarkResolve(b *testing.B) {
	in := Input{
		Location: workspace(b, `{"image": "x", "remoteUser": "vscode", "remoteEnv": {"A": "${localEnv:TOKEN}", "B": "${containerEnv:NAME}"}, "customizations": {"vscode": {"extensions": ["a", "b"]}}}`),
		Container: ContainerInfo{
			Env:    containerEnv,
			Labels: map[string]string{LabelMetadata: resolveCases[2].labels[LabelMetadata]},
		},
		LocalEnv: locals(hostEnv),
	}
	for b.Loop() {
		if _, err := Resolve(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}
