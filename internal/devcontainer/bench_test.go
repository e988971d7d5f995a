package devcontainer

import "testing"

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

// BenchmarkApprove measures Approve of a workspace that is trusted.
func BenchmarkApprove(b *testing.B) {
	loc := workspace(b, `{"build": {"dockerfile": "Dockerfile"}, "initializeCommand": "./init.sh"}`)
	write(b, loc.Workspace, ".devcontainer/Dockerfile", "FROM x")
	s := NewTrustStore(b.TempDir(), nil, Compose{})
	mustTrust(b, s, loc)
	for b.Loop() {
		if _, err := s.Approve(b.Context(), loc); err != nil {
			b.Fatal(err)
		}
	}
}
