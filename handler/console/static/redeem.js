// The till's camera: what a QR code says is put into the field, and the person decides what becomes of it.
'use strict';

(() => {
  const button = document.getElementById('scan');
  const field = document.getElementById('code');
  const place = document.getElementById('camera');
  const refused = document.getElementById('camera-refused');
  const video = place.querySelector('video');
  const canvas = document.createElement('canvas');
  let stream = null;

  button.hidden = !navigator.mediaDevices?.getUserMedia;
  field.select();

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

  button.addEventListener('click', async () => {
    if (stream) return stop();
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
    } catch {
      refused.hidden = false;
      return undefined;
    }
    refused.hidden = true;
    place.hidden = false;
    button.setAttribute('aria-pressed', 'true');
    video.srcObject = stream;
    await video.play();
    return look();
  });
  addEventListener('pagehide', stop);
})();
