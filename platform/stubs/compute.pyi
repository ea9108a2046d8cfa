from _paddock.platform.compute import Pool as Pool
