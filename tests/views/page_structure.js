() => {
  const named = (e) => (e.getAttribute('aria-label') || e.textContent || '').trim() || (e.labels && e.labels.length && e.labels[0].textContent.trim());
  const levels = [...document.querySelectorAll('h1,h2,h3,h4,h5')].map((h) => Number(h.tagName[1])), ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  const refs = [...document.querySelectorAll('[aria-describedby],[aria-labelledby]')].flatMap((e) => [e.getAttribute('aria-describedby'), e.getAttribute('aria-labelledby')]).filter(Boolean);
  return {
    jumps: levels.filter((l, k) => k && l > levels[k - 1] + 1), firsts: levels.filter((l) => l === 1).length,
    unnamed: [...document.querySelectorAll('button,input,select,a[href],[role=region],[role=group],[role=application],[role=search],nav,aside')].filter((e) => !named(e)).map((e) => e.outerHTML),
    repeated: ids.filter((id, k) => ids.indexOf(id) !== k), dangling: refs.filter((id) => !document.getElementById(id)),
    pictures: [...document.querySelectorAll('canvas,img,svg')].filter((e) => e.getAttribute('aria-hidden') !== 'true' && !e.getAttribute('aria-label')).length,
    headers: [...document.querySelectorAll('th')].filter((th) => !th.getAttribute('scope')).length,
    language: document.documentElement.lang, main: document.querySelectorAll('main').length, live: document.querySelectorAll('[role=status]').length,
  } }
