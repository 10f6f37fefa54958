package maintenance

import "context"

// CountPiece counts the next rows only, as where a pass ends after them.
func (m *Maintainer) CountPiece(ctx context.Context) error {
	m.counting.restart()
	_, err := m.countPiece(ctx)
	return err
}
