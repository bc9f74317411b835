package repository

import (
	"slices"
	"testing"

	"seckill/model"
)

func TestChooseParts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		remaining []int64
		units     int64
		home      int
		want      []share
	}{
		"at home":                            {[]int64{9, 5, 9}, 5, 1, []share{{1, 5}}},
		"nothing, at home":                   {[]int64{9, 0, 9}, 0, 1, []share{{1, 0}}},
		"the richest":                        {[]int64{3, 1, 9, 8}, 2, 1, []share{{2, 2}}},
		"of equal ones the first behind":     {[]int64{4, 4, 1, 4}, 2, 2, []share{{3, 2}}},
		"several, the richest first, sorted": {[]int64{3, 1, 9, 8}, 19, 1, []share{{0, 2}, {2, 9}, {3, 8}}},
		"all":                                {[]int64{3, 1}, 4, 1, []share{{0, 3}, {1, 1}}},
	} {
		parts := make([]part, len(test.remaining))
		for i, n := range test.remaining {
			parts[i] = part{Shard: i, Remaining: n}
		}
		if got := choose(parts, test.units, test.home); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if got := model.Spread(7, 3); !slices.Equal(got, []int64{3, 2, 2}) {
		t.Errorf("7 units in 3 parts: %v", got)
	}
}
