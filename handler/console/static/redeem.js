// The till: a verdict is heard and felt too, and the next code is one tap away. What the camera reads is put into the
// field, and the person decides what becomes of it.
'use strict';

(() => {
  const button = document.getElementById('scan');
  const field = document.getElementById('code');
  const place = document.getElementById('camera');
  const refused = document.getElementById('camera-refused');
  const video = place.querySelector('video');
  const canvas = document.createElement('canvas');
  let stream = null;

  const scans = 'seckill-scans'; // who has used the camera is shown it again
  const verdict = document.querySelector('[data-verdict]');

  button.hidden = !navigator.mediaDevices?.getUserMedia;
  field.select();
  if (verdict) tell(verdict.dataset.verdict);
  document.querySelector('[data-next]')?.addEventListener('click', (event) => {
    event.preventDefault();
    verdict.remove();
    field.value = '';
    field.focus();
    if (sessionStorage.getItem(scans) && !button.hidden) start();
  });

  // tell lets a verdict be heard and felt, where the browser lets it.
  function tell(as) {
    const tones = { good: [880], bad: [220, 220], known: [] }[as];
    navigator.vibrate?.(tones.map(() => 120).join(' 80 ').split(' ').map(Number));
    if (!tones.length) return;
    const sound = new AudioContext();
    tones.forEach((pitch, n) => {
      const tone = new OscillatorNode(sound, { frequency: pitch });
      tone.connect(new GainNode(sound, { gain: 0.3 })).connect(sound.destination);
      tone.start(sound.currentTime + n * 0.2);
      tone.stop(sound.currentTime + n * 0.2 + 0.12);
    });
  }

  function stop() {
    for (const track of stream?.getTracks() ?? []) track.stop();
    stream = null;
    place.hidden = true;
    button.setAttribute('aria-pressed', 'false');
  }

  function look() {
    if (!stream) return;
    if (video.readyState >= video.HAVE_CURRENT_DATA) {
      const scale = Math.min(1, 640 / video.videoWidth); // enough for a code that fills the picture
      canvas.width = video.videoWidth * scale;
      canvas.height = video.videoHeight * scale;
      const drawing = canvas.getContext('2d', { willReadFrequently: true });
      drawing.drawImage(video, 0, 0, canvas.width, canvas.height);
      const picture = drawing.getImageData(0, 0, canvas.width, canvas.height);
      const found = jsQR(picture.data, picture.width, picture.height, { inversionAttempts: 'dontInvert' });
      if (found?.data) {
        field.value = found.data;
        stop();
        field.focus();
        return;
      }
    }
    setTimeout(look, 100);
  }

  button.addEventListener('click', () => {
    sessionStorage.removeItem(scans);
    return stream ? stop() : start();
  });

  async function start() {
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
    } catch {
      refused.hidden = false;
      return undefined;
    }
    sessionStorage.setItem(scans, 'yes');
    refused.hidden = true;
    place.hidden = false;
    button.setAttribute('aria-pressed', 'true');
    video.srcObject = stream;
    await video.play();
    return look();
  }
  addEventListener('pagehide', stop);
})();
