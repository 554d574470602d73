// Who is signed in: the token, kept for this tab or for this browser, and what it allows.

const KEY = "herdsman.token";
let token = null;
let me = null;

// Also takes a token out of the address, and out of the history with it.
export function restore() {
  const given = /^#token=([^&]+)$/.exec(location.hash);
  if (given) {
    history.replaceState(null, "", `${location.pathname}${location.search}#/`);
    try {
      keep(decodeURIComponent(given[1]), false);
    } catch {
      keep(given[1], false);
    }
  }
  token ??= sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
  return token;
}

export function keep(secret, forLong) {
  forget();
  token = secret.trim();
  (forLong ? localStorage : sessionStorage).setItem(KEY, token);
}

export function forget() {
  token = null;
  me = null;
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

export function know(found) {
  me = found;
}

export const secret = () => token;
export const who = () => me;
export const can = (verb) => me?.can.includes(verb) ?? false;
