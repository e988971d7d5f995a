package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/api"
)

// listenTCP returns a listener at an address, or nil for an empty one.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, dray.Errorf(dray.CodeInvalidRequest, "listen on server.tcp: %w", err).
			WithHint("set server.tcp to a free port of this machine")
	}
	return l, nil
}

// userIDs returns the uids of server.users.
func userIDs(users []string) ([]uint32, error) {
	var ids []uint32
	for _, name := range users {
		text := name
		if u, err := user.Lookup(name); err == nil {
			text = u.Uid
		}
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, dray.Errorf(dray.CodeInvalidRequest, "server.users: there is no user %q", name).
				WithHint("write a name of /etc/passwd, or a uid")
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

// tcpAccess returns who may connect over TCP. It creates the token of the state directory if it
// does not exist and a listener is configured.
func tcpAccess(cfg *config.Config) (api.TCPAccess, error) {
	access := api.TCPAccess{
		Tokens:         map[string]string{},
		AllowedHosts:   cfg.Server.AllowedHosts,
		AllowedOrigins: cfg.Server.AllowedOrigins,
	}
	if cfg.Server.TCP == "" {
		return access, nil
	}
	if err := createToken(cfg.State.Token()); err != nil {
		return access, err
	}
	files := map[string]string{config.DefaultToken: cfg.State.Token()}
	maps.Copy(files, cfg.Server.Tokens)
	owner := map[string]string{}
	for name, file := range files {
		token, err := readToken(file)
		if err != nil {
			return access, err
		}
		if other, ok := owner[token]; ok {
			return access, dray.Errorf(dray.CodeInvalidRequest,
				"the tokens %s and %s are equal, so their clients are not distinct", other, name).
				WithHint("write another token to %s", file)
		}
		owner[token], access.Tokens[name] = name, token
	}
	return access, nil
}

// createToken creates a file with a new token, unless it exists.
func createToken(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = fmt.Fprintln(f, rand.Text())
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create the token: %w", err), os.Remove(path))
	}
	return nil
}

const (
	minToken = 16   // bytes
	maxToken = 4096 // bytes
)

// readToken reads a token from a file that only the daemon's user can read.
func readToken(path string) (string, error) {
	bad := func(format string, args ...any) error {
		return dray.Errorf(dray.CodeInvalidRequest, "the token file %s "+format,
			append([]any{path}, args...)...).
			WithHint("write a token of at least %d characters to the file, and run `chmod 600 %s`",
				minToken, path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", bad("cannot be opened: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", bad("cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return "", bad("is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		return "", bad("has mode %04o, which gives rights to others", info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", bad("cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	isGraphic := func(c rune) bool { return c > ' ' && c < 0x7f }
	if len(token) < minToken || len(text) > maxToken ||
		strings.ContainsFunc(token, func(c rune) bool { return !isGraphic(c) }) {
		return "", bad("has no token of %d to %d visible ASCII characters", minToken, maxToken)
	}
	return token, nil
}
