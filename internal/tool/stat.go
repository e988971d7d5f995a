package tool

import (
	"context"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

type statOutput struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitzero"`
}

func statFile(_ context.Context, at fileScope, in pathInput) (any, error) {
	file, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	info, err := at.files.Stat(file.name)
	if err != nil {
		return nil, file.wrapError("stat", err)
	}
	return statOutput{file.path, info.Type, info.Size, octal(info), info.Modified.UTC(), dray.PrintablePath(info.Target)}, nil
}

// octal writes permissions as the tools tell them.
func octal(info dray.FileInfo) string { return fmt.Sprintf("%04o", info.Mode.Perm()) }
