//go:build faults

//part:browser

package console_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"seckill/internal/workshop/check"
)

// film is an animated picture of a page, frame by frame.
type film struct {
	frames []image.Image
	delay  int // between two of them, in hundredths of a second
}

// shoot adds a frame: what the page shows now.
func (f *film) shoot(t *testing.T, b *tab) {
	t.Helper()
	content := check.Value(b.shot())(t)
	f.frames = append(f.frames, check.Value(png.Decode(bytes.NewReader(content)))(t))
}

// write writes the film as a GIF, small enough for every clone: of each frame it has what differs from the one before.
func (f *film) write(t *testing.T, name string) {
	t.Helper()
	const largest = 1_500_000
	colours := f.colours()
	index := map[color.Color]uint8{}
	for i, c := range colours[1:] {
		index[c] = uint8(i + 1)
	}
	bounds := f.frames[0].Bounds()
	shown := image.NewPaletted(bounds, colours)
	moving := gif.GIF{Config: image.Config{ColorModel: colours, Width: bounds.Dx(), Height: bounds.Dy()}}
	for _, frame := range f.frames {
		changed := image.NewPaletted(bounds, colours) // transparent, which is the first colour
		var box image.Rectangle
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				c := frame.At(x, y)
				i, known := index[c]
				if !known {
					i = uint8(colours[1:].Index(c) + 1)
					index[c] = i
				}
				if shown.ColorIndexAt(x, y) != i {
					shown.SetColorIndex(x, y, i)
					changed.SetColorIndex(x, y, i)
					box = box.Union(image.Rect(x, y, x+1, y+1))
				}
			}
		}
		if box.Empty() {
			box = image.Rect(bounds.Min.X, bounds.Min.Y, bounds.Min.X+1, bounds.Min.Y+1)
		}
		part, _ := changed.SubImage(box).(*image.Paletted)
		moving.Image, moving.Delay, moving.Disposal = append(moving.Image, part), append(moving.Delay, f.delay), append(moving.Disposal, gif.DisposalNone)
	}
	var content bytes.Buffer
	check.Must(t, gif.EncodeAll(&content, &moving))
	if content.Len() > largest {
		t.Errorf("the film %s has %d bytes, want at most %d", name, content.Len(), largest)
	}
	check.Must(t, os.WriteFile(filepath.Join(*pictures, name+".gif"), content.Bytes(), 0o600))
}

// colours are the most frequent ones of all frames, behind the one that leaves a place as it was.
func (f *film) colours() color.Palette {
	const most = 255
	times := map[color.Color]int{}
	for _, frame := range f.frames {
		bounds := frame.Bounds()
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				times[frame.At(x, y)]++
			}
		}
	}
	found := slices.SortedFunc(maps.Keys(times), func(a, b color.Color) int { return cmp.Compare(times[b], times[a]) })
	return append(color.Palette{color.Transparent}, found[:min(len(found), most)]...)
}
