// Who looks, and at whose memories. The credential lives in this tab only, and only until it is closed.

const CREDENTIAL = "credential";
const USER = "user";

export class Session {
  /** The identity from /v1/memory/me. */
  me = null;

  get credential() {
    return sessionStorage.getItem(CREDENTIAL);
  }

  /** Whose memories are shown: fixed by the credential, or chosen. */
  get user() {
    return this.me?.user_id ?? sessionStorage.getItem(USER);
  }

  get mayChooseUser() {
    return !this.me?.user_id;
  }

  get mayForgetSignIn() {
    return this.credential !== null || (this.mayChooseUser && this.user !== null);
  }

  may(right) {
    return this.me?.rights?.includes(right) ?? false;
  }

  useCredential(credential) {
    this.me = null;
    sessionStorage.removeItem(USER);
    sessionStorage.setItem(CREDENTIAL, credential);
  }

  lookAt(user) {
    sessionStorage.setItem(USER, user);
  }

  signOut() {
    this.me = null;
    sessionStorage.clear();
  }

  /** The query's part that says whose. A credential's own user needs no naming. */
  get query() {
    return this.mayChooseUser ? { user_id: this.user } : {};
  }
}
