// Copies what the console serves out of node_modules: node copy.mjs NODE_MODULES LIB ASSETS. Beside the files it writes
// their checksums, LIB/SHA256SUMS, and the licences of the packages, ASSETS/licences.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [modules, lib, assets] = process.argv.slice(2);
const read = (path) => readFileSync(join(modules, path), 'utf8');
for (const directory of [lib, join(assets, 'licences')]) {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
}
const files = {
  'htmx.min.js': read('htmx.org/dist/htmx.min.js'),
  'hx-sse.min.js': read('htmx.org/dist/ext/hx-sse.min.js'),
  'uplot.min.js': read('uplot/dist/uPlot.iife.min.js'),
  'uplot.min.css': read('uplot/dist/uPlot.min.css'),
  'jsqr.js': read('jsqr/dist/jsQR.js'),
  'qrcode.js': read('qrcode-generator/dist/qrcode.js'),
};
for (const name of Object.keys(files)) files[name] = files[name].replace(/^\/[/*][#@] sourceMappingURL=.*$/m, '');

// The pages' policy lets no style load a data: URL, so the pictures in Tabler's become files.
const pictures = new Map();
files['tabler.min.css'] = read('@tabler/core/dist/css/tabler.min.css')
  .replace(/url\("data:image\/svg\+xml,([^"]*)"\)/g, (_, svg) => {
    if (!pictures.has(svg)) pictures.set(svg, `tabler-${pictures.size + 1}.svg`);
    return `url(${pictures.get(svg)})`;
  })
  .replace(/\/\*# sourceMappingURL=.*\*\/\s*$/, '');
for (const [svg, name] of pictures) files[name] = decodeURIComponent(svg);

// One picture has all icons that pages use, each by its name.
const icons = JSON.parse(readFileSync(join(assets, 'icons.json'), 'utf8'));
files['icons.svg'] = `<svg xmlns="http://www.w3.org/2000/svg">\n${icons.sort().map((name) => {
  const inside = read(`@tabler/icons/icons/outline/${name}.svg`).replace(/<!--[^]*?-->/g, '').match(/<svg[^>]*>([^]*)<\/svg>/)[1]
    .replace(/\s*<path stroke="none" d="M0 0h24v24H0z" fill="none"\s*\/>/, '').replace(/\s*\n\s*/g, '');
  return `<symbol id="${name}" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">${inside}</symbol>`;
}).join('\n')}\n</svg>\n`;

let sums = '';
for (const name of Object.keys(files).sort()) {
  writeFileSync(join(lib, name), files[name]);
  sums += `${createHash('sha256').update(files[name]).digest('hex')}  ${name}\n`;
}
writeFileSync(join(lib, 'SHA256SUMS'), sums);

for (const name of Object.keys(JSON.parse(readFileSync(join(assets, 'package.json'), 'utf8')).dependencies)) {
  const licence = readdirSync(join(modules, name)).find((file) => /^licen[cs]e/i.test(file));
  const heads = { '@tabler/core': 'dist/css/tabler.css', 'qrcode-generator': 'dist/qrcode.js' };
  const text = licence ? read(join(name, licence)) : read(join(name, heads[name])).split('\n').slice(0, 20).join('\n');
  writeFileSync(join(assets, 'licences', `${name.replace(/^@/, '').replace('/', '-')}.txt`), text);
}
if (!existsSync(join(lib, 'tabler.min.css'))) throw new Error('nothing was copied');
