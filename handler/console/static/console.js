// What every page does: it tells the server the browser's time zone, and counts down on the server's clock.
'use strict';

// The server shows times in the zone that this cookie names. It is no secret.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && zone !== document.body.dataset.zone) {
  document.cookie = `seckill-zone=${zone}; path=/; max-age=31536000; samesite=strict`;
}

// The browser's clock may be wrong. What has passed since the page was made is measured on the one that is never set.
const madeAt = Date.parse(document.body.dataset.now) - (performance.getEntriesByType('navigation')[0]?.responseStart ?? 0);
const serverNow = () => madeAt + performance.now();

function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (number) => String(number).padStart(2, '0');
  const days = Math.floor(seconds / 86400);
  const clock = `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days} d ${clock}` : clock;
}

function countDown() {
  for (const place of document.querySelectorAll('[data-until]')) {
    place.textContent = `${place.dataset.words} ${span(Date.parse(place.dataset.until) - serverNow())}`;
  }
}
countDown();
setInterval(countDown, 1000);
