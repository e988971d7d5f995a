package files

import (
	"context"
	"os"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// WriteTree writes a tree beneath the root, all of it or nothing; see [stage.WriteTree]. It does not close the tree.
func (l *Local) WriteTree(ctx context.Context, tree dray.Tree, how dray.WriteTreeOptions) (placed []dray.WrittenFile, err error) {
	err = l.withRoot(func(root *os.File) error {
		placed, err = stage.WriteTree(ctx, root, tree, how)
		return err
	})
	return placed, err
}

// Recover finishes or removes what processes that died in the middle of a Place left beneath the root, and says how many trees it finished;
// see [stage.Recover].
func (l *Local) Recover(ctx context.Context) (finished int, err error) {
	err = l.withRoot(func(root *os.File) error {
		finished, err = stage.Recover(ctx, root)
		return err
	})
	return finished, err
}

func (l *Local) withRoot(use func(root *os.File) error) error {
	root, err := l.root.Open(".")
	if err != nil {
		return classify(err)
	}
	defer func() { _ = root.Close() }()
	return use(root)
}
