() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return rgba('white'); };
  const texts = [...document.querySelectorAll('h1,h2,h3,p,li,td,th,dt,dd,button,a,label,.outcome,.score,code')].filter((e) => e.offsetParent && e.textContent.trim());
  const poor = texts.filter((e) => ratio(rgba(getComputedStyle(e).color), ground(e)) < 4.5).map((e) => e.outerHTML.slice(0, 120));
  const root = getComputedStyle(document.documentElement), panel = rgba(root.getPropertyValue('--panel'));
  const marks = ['this', 'cited', 'citing', 'further-small'].filter((name) => ratio(rgba(root.getPropertyValue('--role-' + name)), panel) < 3);
  return [poor, marks] }
