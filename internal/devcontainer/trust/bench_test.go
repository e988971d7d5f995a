package trust

import (
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

// BenchmarkApprove measures Approve of a workspace that is trusted.
func BenchmarkApprove(b *testing.B) {
	loc := devtest.Workspace(b, `{"build": {"dockerfile": "Dockerfile"}, "initializeCommand": "./init.sh"}`)
	devtest.Write(b, loc.Workspace, ".devcontainer/Dockerfile", "FROM x")
	s := NewStore(b.TempDir(), nil, compose.Options{})
	mustTrust(b, s, loc)
	for b.Loop() {
		if _, err := s.Approve(b.Context(), loc); err != nil {
			b.Fatal(err)
		}
	}
}
