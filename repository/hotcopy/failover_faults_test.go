//go:build faults

//part:clusters

package hotcopy

import (
	"fmt"
	"testing"
	"time"

	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// The client waits for one primary until its time is up; what the others have said counts.
func TestWhatOtherPrimariesSayCountsWhileOneHangs(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	client := check.Value(redisdb.NewClient(cluster.URL(), nil))(t)
	t.Cleanup(func() { _ = client.Close() })
	check.Must(t, Rehearse(t.Context(), client, true)) // as at a start: all of them know the scripts
	s := New(client, Options{})
	var ids []string
	var asked []model.ReserveRequest
	for primary := range cluster.Primaries {
		now, id := time.Now(), ""
		for n := 0; id == "" || cluster.Owner(headKey(id)) != primary; n++ {
			id = fmt.Sprint("v", n)
		}
		record := model.EpochRecord{VoucherID: id, Epoch: 1}
		check.Must(t, s.Close(t.Context(), record))
		check.Must(t, s.Load(t.Context(), record, nil, nil))
		check.Must(t, s.Open(t.Context(), record, model.Voucher{
			ID: id, VoucherFields: model.VoucherFields{
				Stock: 1, State: model.VoucherPublished, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour),
			},
		}, 0))
		ids, asked = append(ids, id), append(asked,
			model.ReserveRequest{OrderID: model.OrderID("o", id), VoucherID: id, UserID: "u"})
	}
	cluster.Primaries[0].Pause()
	t.Cleanup(cluster.Primaries[0].Resume)

	copies, err := s.Read(t.Context(), ids)
	if err == nil || len(copies) != len(ids)-1 || copies[ids[1]].State != model.CopyOpen ||
		copies[ids[2]].State != model.CopyOpen {
		t.Errorf("read %+v, %v", copies, err)
	}
	answers := check.Value(s.Reserve(t.Context(), asked))(t)
	check.That(t, answers[0].Err != nil && answers[1].Err == nil && answers[2].Err == nil, "answers %+v", answers)
}
