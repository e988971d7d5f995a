package helper

import (
	"slices"
	"testing"
)

// EX-06: what `up` gets of the daemon's environment.
func TestEnv(t *testing.T) {
	got := Env([]string{
		"HOME=/root", "PATH=/bin", "LANG=C", "LC_ALL=C", "DOCKER_HOST=x", "SSH_AUTH_SOCK=/s", "AWS_SECRET_ACCESS_KEY=k", "GITHUB_TOKEN=t", "DRAY_TOKEN=t",
		"COMPOSE_FILE=evil.yml", "LD_PRELOAD=x", "NODE_OPTIONS=x", "GIT_DIR=x", "broken",
	})
	if want := []string{
		"HOME=/root", "PATH=/bin", "LANG=C", "LC_ALL=C", "DOCKER_HOST=x",
		"SSH_AUTH_SOCK=/s",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
