package repair

import (
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
)

// Every order agrees by its id, and the database adds up by itself. A hot copy that has fewer units to sell than the
// database is not balanced all the same: stock would be lost to the buyers.
func TestAuditComparesWhatIsLeft(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		<-time.After(time.Minute) // nothing is young any more
		synctest.Wait()
		audit := check.Value(s.Auditor.Audit(t.Context(), "v1"))(t)
		check.Equal(t, "balanced", audit.Balanced, true)
		s.hot().Set("missing", 2)
		audit = check.Value(s.Auditor.Audit(t.Context(), "v1"))(t)
		check.Equal(t, "balanced with two units that only the database has", audit.Balanced, false)
		check.Equal(t, "orders that drift", len(audit.Drift), 0)
	})
}
