package tool

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
)

// maxEntries is how many entries of a folder are listed.
const maxEntries = 1000

// pathInput is the input of a tool that asks for nothing but a path.
type pathInput struct {
	Path string `json:"path"`
}

type listOutput struct {
	Path      string  `json:"path"`
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated"`
}

type entry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
}

func listDir(_ context.Context, at fileScope, in pathInput) (any, error) {
	folder, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	infos, more, err := at.files.List(folder.name, maxEntries)
	if err != nil {
		return nil, folder.wrapError("list", err)
	}
	slices.SortFunc(infos, func(a, b dray.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	out := listOutput{Path: folder.path, Entries: make([]entry, 0, len(infos)), Truncated: more}
	for _, info := range infos {
		out.Entries = append(out.Entries, entry{dray.PrintablePath(info.Name), info.Type, info.Size, octal(info), info.Modified.UTC()})
	}
	return out, nil
}
