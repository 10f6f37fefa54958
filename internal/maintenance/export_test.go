package maintenance

import "context"

// CountPage counts the next rows only, as where a pass ends after them.
func (m *Maintainer) CountPage(ctx context.Context) error {
	m.counting.restart()
	_, err := m.countPage(ctx)
	return err
}
