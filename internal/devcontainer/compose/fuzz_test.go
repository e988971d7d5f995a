package compose

import (
	"testing"
)

// oneFile are Files with the same content at every path.
type oneFile []byte

func (f oneFile) Read(string) ([]byte, error) { return f, nil }
func (oneFile) IsDir(string) bool             { return false }

// FuzzCompose parses any text as a compose file, and as the output of docker compose config.
func FuzzCompose(f *testing.F) {
	f.Add([]byte("services: {app: {build: ., env_file: a.env}}\ninclude: [b.yml]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = Read(oneFile(text), "/w", []string{"/w/c.yml"})
		q := query{Inputs: newInputs(oneFile(text), "/w"), copy: "/copy"}
		q.setEnv()
		if p, err := q.parse(string(text)); err == nil {
			_, _ = p.Dockerfiles()
		}
	})
}
